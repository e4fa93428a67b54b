import io

import pandas as pd

table = pd.read_csv(io.StringIO("name,score\nada,3\nbob,5\nada,4\n"))
means = table.groupby("name")["score"].mean()
assert means["ada"] == 3.5
table.to_csv("table.csv", index=False)
assert pd.read_csv("table.csv").equals(table)
when = pd.date_range("2024-03-30", periods=3, freq="D", tz="Europe/Berlin")
assert str(when[2].utcoffset()) == "2:00:00"
assert table.merge(means.rename("mean"), left_on="name", right_index=True).shape == (3, 3)
assert "score" in table.describe().to_string()
