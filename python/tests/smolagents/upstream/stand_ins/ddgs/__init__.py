"""So that a tool which holds a client can be made; no test searches with it."""


class DDGS:
    pass
