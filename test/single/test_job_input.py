"""What horovodrun does with its standard input: JobInput, between two pipes."""

import contextlib
import os
import select

from horovod.runner.job_input import JobInput, frame


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


def test_what_does_not_fit_waits_and_nothing_is_lost() -> None:
    source, writer = os.pipe()
    there, target = os.pipe()
    try:
        job = JobInput(source, target)
        job.begin(os.uname().nodename)
        filled = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                filled += os.write(target, bytes(4096))
        os.write(writer, b"y\n")
        job.go_on(source)
        assert job.wanted() == {target: select.POLLOUT}
        while filled:
            filled -= len(os.read(there, filled))
        job.go_on(target)
        assert os.read(there, 99) == frame(b"y\n")
        assert job.wanted() == {source: select.POLLIN}
    finally:
        for descriptor in (source, writer, there, target):
            os.close(descriptor)
