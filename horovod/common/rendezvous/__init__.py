"""How ranks that no MPI has started meet.

`meeting.open_over_tcp` makes a world of those who meet, wherever that is. Nothing in here knows how ranks
talk when they are connected: that is the core's.
"""
