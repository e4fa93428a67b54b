import binascii
import bz2
import hashlib
import hmac
import lzma
import ssl
import zlib

assert hashlib.sha256(b"abc").hexdigest().startswith("ba7816bf")
assert hashlib.blake2b(b"abc", digest_size=4).hexdigest() == "63906248"
assert hashlib.new("md5", b"abc").hexdigest() == "900150983cd24fb0d6963f7d28e17f72"
assert len(hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 1000)) == 32
assert len(hashlib.scrypt(b"word", salt=b"salt", n=1024, r=8, p=1)) == 64
assert hmac.compare_digest(hmac.digest(b"key", b"text", "sha256"), hmac.digest(b"key", b"text", "sha256"))
context = ssl.create_default_context()
assert context.verify_mode == ssl.CERT_REQUIRED
assert len(ssl.RAND_bytes(16)) == 16
for module in (zlib, bz2, lzma):
    assert module.decompress(module.compress(b"text" * 1000)) == b"text" * 1000
assert binascii.crc32(b"abc") == 0x352441C2
