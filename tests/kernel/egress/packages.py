"""The same with the HTTP packages that most programs use."""

import asyncio
import os

import aiohttp
import httpx
import requests

HTTP, HTTPS, ECHO = PORTS
SERVERS = ["http://api.example:%d/a" % HTTP, "https://tls.example:%d/a" % HTTPS]
PROXIES = [name for name in os.environ if name.lower().endswith("_proxy")]


async def by_aiohttp(trust_env):
    async with aiohttp.ClientSession(trust_env=trust_env) as session:
        for url in SERVERS:
            async with session.get(url) as response:
                assert (await response.json())["path"] == "/a"
    print("aiohttp")


for proxies in True, False:
    for url in SERVERS:
        assert requests.get(url).json()["path"] == "/a"
        print("requests")
        assert httpx.get(url).json()["path"] == "/a"
        print("httpx")
    asyncio.run(by_aiohttp(proxies))
    for name in PROXIES:
        os.environ.pop(name, None)
