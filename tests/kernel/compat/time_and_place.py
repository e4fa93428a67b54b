import datetime
import locale
import os
import sys
import time
import zoneinfo

berlin = zoneinfo.ZoneInfo("Europe/Berlin")
summer = datetime.datetime(2024, 7, 1, 12, tzinfo=berlin)
assert summer.utcoffset() == datetime.timedelta(hours=2)
assert summer.astimezone(zoneinfo.ZoneInfo("Asia/Tokyo")).hour == 19
assert time.tzname[0] == "UTC", time.tzname
assert abs(time.time() - time.clock_gettime(time.CLOCK_REALTIME)) < 5

locale.setlocale(locale.LC_ALL, "")
assert locale.getpreferredencoding().upper() == "UTF-8", locale.getpreferredencoding()
assert sys.getfilesystemencoding() == "utf-8"
assert sys.stdout.encoding == "utf-8"
assert os.environ["LANG"] == "C.UTF-8"
assert os.environ["HOME"] == "/work" and os.getcwd() == "/work"
assert os.path.expanduser("~") == "/work"
