def drawing(hosts, ranks=None, routes=()):
    return "<svg/>"
