"""Messages the certificates actor receives: none but what every actor takes (proto.agent.actor). Nobody asks it: what it gets
is in files."""
