"""What people do: approvals, decisions, claims and delegations."""
