"""For every test of the workspace: property tests are judged by what they find, never by how fast this machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile("skald", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("skald")
