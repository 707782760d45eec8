"""Containers: the `docker` sandbox, the kind `docker`, and the image they use by default."""
