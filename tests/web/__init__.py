"""The dashboard as the server answers it; what happens in a browser is tried in tests/browser."""
