"""Top-level `await`, on one event loop for all cells."""


class EventLoop:
    def __init__(self):
        self.loop = None

    def run(self, coroutine):
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        # Set each time, because `asyncio.run` in a cell removes it.
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            self.abandon(task)
            raise

    def abandon(self, task):
        """Ends an interrupted task, so that it does not run during the next cell."""
        if task.done():
            return
        task.cancel()
        try:
            self.loop.run_until_complete(task)
        except BaseException:
            # The task's cancellation, or an exception of its cleanup.
            pass
