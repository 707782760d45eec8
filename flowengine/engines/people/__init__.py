"""Human-in-the-loop: approvals, decisions, claims, delegations and grants."""
