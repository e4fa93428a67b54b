import sqlite3

for place in ("/work/base.db", ":memory:"):
    with sqlite3.connect(place) as base:
        base.execute("pragma journal_mode = wal")
        base.execute("create table things (name text, size integer)")
        base.executemany("insert into things values (?, ?)", [(f"thing {n}", n) for n in range(1000)])
        base.execute("create index sizes on things (size)")
        base.commit()
        assert base.execute("select sum(size) from things where size > 10").fetchone() == (499445,)
        assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    base.close()
