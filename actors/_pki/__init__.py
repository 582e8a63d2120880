"""Keys, certificate requests and the content of certificates, by a short-lived child process.

The X.509 library takes 14 MB and is seldom needed, so no actor imports it. `pem` does without it.
"""
