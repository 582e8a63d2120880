"""What node plugins speak on their sockets: plugin registration v1 and the Container Storage Interface v1.

Nothing is imported here: the stubs cost memory, so only who talks to a plugin imports them.
"""
