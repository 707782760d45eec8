"""Classes of older systems, for programs that were written for them.

Nothing else imports them: they open the same environments as flows, without a manager.
"""
