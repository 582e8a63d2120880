"""Messages the certificates actor receives: none but what every actor takes (proto.actor). Nobody asks it: what it gets
is in files."""
