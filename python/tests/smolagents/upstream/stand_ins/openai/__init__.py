"""So that a test can put its own client in this one's place."""


class OpenAI:
    pass
