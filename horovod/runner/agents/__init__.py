"""horovodrun's own launcher: an agent on each host of a job, and a driver in horovodrun's process.

    horovodrun (`by_agents`)
      driver                 connects to agents, and carries out the job's decisions
        `job`                events to orders; `decisions`, `elastic`, `restart_job` decide
        `supervision`        when to end the job; `outcome` finds the rank to blame
        `output`             shows the ranks' output, on a separate thread
      agent                  one on each host, a child of horovodrun or of ssh
        wrapper              one for each rank, the parent of the rank's command

No process listens on a network. Each process ends its descendants: an agent ends its ranks when its standard
input ends, and the kernel ends the ranks of a killed agent.
"""
