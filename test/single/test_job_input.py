"""What horovodrun does with its standard input: JobInput, between two pipes."""

import os
import select

from horovod.runner.job_input import JobInput


def test_input_that_comes_with_the_news_that_nobody_reads_it_is_left() -> None:
    """One poll may tell of both; the pipe to mpirun is closed then."""
    source, writer = os.pipe()
    there, target = os.pipe()
    try:
        job = JobInput(source, target)
        job.begin(os.uname().nodename)
        os.write(writer, b"y\n")
        assert job.wanted() == {source: select.POLLIN}
        job.take(-1)
        job.go_on(source)
        assert job.wanted() == {}
        assert os.read(source, 9) == b"y\n"
        assert os.read(there, 9) == b""  # its only writer has closed it
    finally:
        for descriptor in (source, writer, there):
            os.close(descriptor)
