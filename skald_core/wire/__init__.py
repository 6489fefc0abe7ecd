"""What every provider of models behind HTTP needs: addresses, retries, failures, reading answers. Used through the API."""
