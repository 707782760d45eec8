"""Classes of older systems, for programs written for them.

They open the same environments as flows, without a manager. Nothing else imports them.
"""
