import asyncio
import os


async def main():
    assert await asyncio.gather(*(asyncio.sleep(0.01, result=n) for n in range(20))) == list(range(20))
    process = await asyncio.create_subprocess_exec(
        "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate(b"through a child\n")
    assert (out, process.returncode) == (b"through a child\n", 0)
    shell = await asyncio.create_subprocess_shell("exit 6")
    assert await shell.wait() == 6
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(None, sum, range(10)) == 45
    try:
        await asyncio.wait_for(asyncio.sleep(60), 0.05)
    except asyncio.TimeoutError:
        pass
    else:
        raise AssertionError("no timeout")

    async def answer(reader, writer):
        writer.write((await reader.readline()).upper())
        writer.close()

    server = await asyncio.start_unix_server(answer, os.path.join(os.getcwd(), "socket"))
    reader, writer = await asyncio.open_unix_connection("socket")
    writer.write(b"hello\n")
    assert await reader.readline() == b"HELLO\n"
    writer.close()
    server.close()


asyncio.run(main())
