# Each script is run by `sh -ec` in an empty directory, outside and by `sandfork exec`. It fails by its exit code.
# program: ls
ls / /dev /etc /tmp /var/tmp > list
test -s list
# program: ps
ps aux | grep -q ps
# program: free
free -m
# program: uptime
uptime
# program: nproc
test "$(nproc)" -ge 1
# program: lscpu
lscpu
# program: top
top -b -n1
# program: df
df -h .
# program: id
id; whoami; hostname; uname -a
# program: bash
bash -ec 'a=(1 2 3); [[ ${#a[@]} = 3 ]]; diff <(echo a) <(echo a); exec {fd}<>/dev/null'
# program: bash job control
bash -emc 'sleep 0.1 & wait %1'
# program: coreutils
seq 100 | sort -R | sort -n | tail -1 | grep -q 100; seq 9 | shuf | wc -l; split -n 2 /bin/true; sha256sum x*; cp -a xaa y; install -m 644 y z; mktemp -d; touch t; mv t u; ln -s u v; stat v; truncate -s 1M big; dd if=/dev/zero of=d bs=64k count=4
# program: find
mkdir -p a/b; touch a/b/c; find . -type f -newer / -o -print0 | xargs -0 -n1 echo
# program: sed and awk
echo a b | sed s/a/c/ | awk '{ print $2, $1 }'
# program: tar
mkdir d; echo x > d/f; tar czf a.tgz d; tar xzf a.tgz -C /tmp; tar cJf b.txz d
# program: git
git init -q .; git config user.email a@b; git config user.name a; echo x > f; git add f; git commit -qm one; git log --oneline; git clone -q . /tmp/clone-of-it
# program: diff and patch
echo a > a; echo b > b; diff -u a b > p || patch a < p
# program: make
printf 'all: a b\na b:\n\ttouch $@\n' > Makefile; make -j2
# program: cc
echo 'int main(void) { return 0; }' > a.c; cc -o a.out a.c; ./a.out
# program: shared library
echo 'int one(void) { return 1; }' > a.c; cc -shared -fPIC -o a.so a.c; python3 -c 'import ctypes; assert ctypes.CDLL("./a.so").one() == 1'
# program: perl
perl -e 'use POSIX; use Socket; print strftime("%Y", gmtime), "\n"'
# program: openssl
openssl genrsa -out k 2048; openssl req -x509 -key k -subj /CN=a -out c -days 1; openssl x509 -in c -noout -text
# program: curl
python3 -m http.server 8000 --bind 127.0.0.1 & sleep 1; curl -sf http://localhost:8000/; kill %1 || kill $!
# program: script
script -qec 'tty' /dev/null
# program: taskset
taskset -p $$; taskset -c "$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')" true
# program: nice
nice -n 5 true; ionice -c 3 true
# program: timeout
timeout 5 true
# program: flock
flock lock true
# program: setsid
setsid -w true
# program: env
env -i PATH="$PATH" python3 -c 'pass'
# program: xz and zip
echo x > f; xz -k f; unxz -c f.xz; bzip2 -k f; gzip -k f
# program: python3 -m venv
python3 -m venv --without-pip v; v/bin/python -c 'import sys; assert sys.prefix != sys.base_prefix'
# program: python3 of a child
python3 -c 'import subprocess, sys; subprocess.run([sys.executable, "-c", "import json"], check=True)'
# program: multiprocessing
python3 -c 'import multiprocessing as m; assert m.get_context("fork").Pool(2).map(abs, [-1]) == [1]'
# program: sqlite
python3 -c 'import sqlite3; c = sqlite3.connect("a.db"); c.execute("pragma journal_mode=wal"); c.execute("create table t(a)"); c.commit()'
# program: ssh-keygen
ssh-keygen -q -t ed25519 -N "" -f key
# program: gdb-less core utilities
strings /bin/true > s || true; file /bin/true || true; test -s s || test -e s
# program: localhost
getent hosts localhost; getent hosts "$(hostname)"; getent services http; getent protocols tcp
# program: fontconfig
command -v fc-list > /dev/null || exit 0; fc-list > f
# program: terminal
python3 -c 'import os, pty; assert pty.spawn(["true"]) == 0'
# program: controlling terminal
script -qec 'echo typed > /dev/tty' /dev/null
# program: java
command -v javac > /dev/null || exit 0
echo 'public class A { public static void main(String[] a) throws Exception { java.security.MessageDigest.getInstance("SHA-256"); } }' > A.java
javac A.java; java A
# program: tmpfiles
echo x > /var/tmp/x; echo x > /dev/shm/x; echo x > /tmp/x
