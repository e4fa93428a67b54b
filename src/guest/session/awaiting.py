"""Top-level `await`, on one event loop for all cells."""


class EventLoop:
    def __init__(self):
        self.loop = None

    def run(self, coroutine):
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        # `asyncio.run` of a cell takes it away.
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            self.abandon(task)
            raise

    def abandon(self, task):
        """Ends a task that was left while it waited: the next cell's turn is not for it."""
        if task.done():
            return
        task.cancel()
        try:
            self.loop.run_until_complete(task)
        except BaseException:
            # Its cancellation, or what came of it.
            pass
