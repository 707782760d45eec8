"""What the commands on approvals share."""
