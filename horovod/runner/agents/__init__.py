"""`horovodrun --launcher tcp`: starts a job's ranks without an MPI, by an agent on each host.

    horovodrun (`supervise`)   reads what ranks write and report, and says who is to blame, as with mpirun
      driver                   stands in mpirun's place
        agent                  one on each host, a child of the driver, or of ssh
          wrapper (`rank`)     one for each rank, and the rank's command below

Nothing of it listens. Who is above ends what is below: an agent ends its ranks when its standard input ends,
and the kernel ends those whose agent was killed.
"""
