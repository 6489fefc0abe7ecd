"""The product's version; the kernel-API version for plugins is ``skald_core.api.API_VERSION``."""

VERSION = "0.1.0"
