"""How ranks meet that MPI has not started.

`meeting.open_over_tcp` makes a world of the ranks that meet, at any meeting place. How connected ranks
communicate is the core's task.
"""
