"""Wire formats. One module a format: bytes to `Call`, plan to bytes, errors in the format's own shape. Pure."""
