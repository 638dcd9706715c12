"""Starts Ryu 4.34 with an eventlet that its Python can run.

Ryu imports `ALREADY_HANDLED`, which eventlet removed before it supported Python 3.10; only WebSockets use it.
"""

import eventlet.wsgi

if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
    eventlet.wsgi.ALREADY_HANDLED = []

from ryu.cmd.manager import main

main()
