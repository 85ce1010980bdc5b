"""horovodrun's own launcher: an agent on each host of a job, and a driver in horovodrun's process.

    horovodrun (`by_agents`)
      driver                 connections to agents; carries out what the job decides
        `job`                what is told to whom; `decisions`, `elastic`, `restart_job` decide
        `supervision`        when the job is to be ended; `outcome` says who is to blame
        `output`             shows what ranks write, on a thread of its own
      agent                  one on each host, a child of horovodrun, or of ssh
        wrapper              one for each rank, and the rank's command below

Nothing of it listens. A process ends what is below it: an agent ends its ranks when its standard input ends,
and the kernel ends those whose agent was killed.
"""
