//! Tests of each kind of error in a policy, and of the message that names the fix.

use insta::assert_snapshot;

use crate::support::refusal;

#[test]
fn unknown_keys_come_with_the_nearest_known_one() {
    assert_snapshot!(refusal("limits.wal = '2s'"), @"tenant.toml:1: limits.wal: unknown key: did you mean `limits.wall`?");
    assert_snapshot!(refusal("limit.wall = '2s'"), @"tenant.toml:1: limit: unknown key: did you mean `limits`?");
    assert_snapshot!(refusal("wall = '2s'"), @"tenant.toml:1: wall: unknown key: did you mean `limits.wall`?");
    assert_snapshot!(refusal("limits.work_size = '2MiB'"), @"tenant.toml:1: limits.work_size: unknown key: it is not a key of [limits]: write `filesystem.work_size`");
    assert_snapshot!(refusal("limits.timeout = '2s'"), @"tenant.toml:1: limits.timeout: unknown key: did you mean `limits.wall`?");
    assert_snapshot!(refusal("timeout = '2s'"), @"tenant.toml:1: timeout: unknown key: did you mean `limits.wall`?");
    assert_snapshot!(refusal("limits = { pids = 4, 'open files' = 5 }"), @"tenant.toml:1: limits.open files: unknown key: did you mean `limits.open_files`?");
}

#[test]
fn the_first_unknown_key_of_the_text_is_reported() {
    assert_snapshot!(refusal("[env]\nzap = 2\n[python]\nzip = 1"), @"tenant.toml:2: env.zap: unknown key: [env] has pass, set");
    assert_snapshot!(refusal("[python]\nzip = 1\n[env]\nzap = 2"), @"tenant.toml:2: python.zip: unknown key: [python] has environment, fresh, interpreter, packages, path, preload, project");
}

#[test]
fn quantities_without_a_known_unit_are_refused() {
    assert_snapshot!(refusal("limits.wall = 2"), @r#"tenant.toml:1: limits.wall: integer `2` is the wrong type: write a duration in quotes, such as "500ms" or "2s""#);
    assert_snapshot!(refusal("limits.wall = '2'"), @r#"tenant.toml:1: limits.wall: "2" has no unit: write ms, s, m or h, such as "2s""#);
    assert_snapshot!(refusal("limits.wall = '2sec'"), @r#"tenant.toml:1: limits.wall: "2sec" has an unknown unit `sec`: did you mean `s`? Write ms, s, m or h"#);
    assert_snapshot!(refusal("limits.memory = '256mb'"), @r#"tenant.toml:1: limits.memory: "256mb" has an unknown unit `mb`: did you mean `MB`? Write B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"#);
    assert_snapshot!(refusal("limits.memory = 'lots'"), @r#"tenant.toml:1: limits.memory: "lots" is not a size: write a whole or decimal number and a unit, such as "256MiB""#);
    assert_snapshot!(refusal("limits.memory = '99999999TiB'"), @r#"tenant.toml:1: limits.memory: "99999999TiB" is too large for the kernel: write a smaller size"#);
}

#[test]
fn a_session_without_a_known_end_is_refused() {
    assert_snapshot!(refusal("session.idle = false"), @r#"tenant.toml:1: session.idle: boolean `false` is the wrong type: write a duration in quotes, such as "1h", or "never""#);
    assert_snapshot!(refusal("session.idle = 'none'"), @r#"tenant.toml:1: session.idle: "none" is not a duration: write a whole or decimal number and a unit, such as "2s", or "never""#);
    assert_snapshot!(refusal("session.age = '0s'"), @r#"tenant.toml:1: session.age: 0ms is out of range: write 1ms to 720h, or "never""#);
    assert_snapshot!(refusal("session.age = '31 days'"), @r#"tenant.toml:1: session.age: "31 days" has an unknown unit `days`: write ms, s, m or h, or "never""#);
}

#[test]
fn limits_out_of_range_are_refused() {
    assert_snapshot!(refusal("limits.wall = '0s'"), @"tenant.toml:1: limits.wall: 0ms is out of range: write 1ms to 720h");
    assert_snapshot!(refusal("limits.wall = '721h'"), @"tenant.toml:1: limits.wall: 721h is out of range: write 1ms to 720h");
    assert_snapshot!(refusal("limits.cpu = '0ms'"), @"tenant.toml:1: limits.cpu: 0ms is out of range: write 1ms to 720h");
    assert_snapshot!(refusal("limits.memory = '16383KiB'"), @"tenant.toml:1: limits.memory: 16383KiB is out of range: write 16MiB to 1024TiB");
    assert_snapshot!(refusal("limits.pids = 0"), @"tenant.toml:1: limits.pids: 0 is out of range: write 1 to 4194304");
    assert_snapshot!(refusal("limits.pids = -1"), @"tenant.toml:1: limits.pids: -1 is not a count: write a whole number above 0, such as 64");
    assert_snapshot!(refusal("limits.pids = 4194305"), @"tenant.toml:1: limits.pids: 4194305 is out of range: write 1 to 4194304");
    assert_snapshot!(refusal("limits.open_files = 15"), @"tenant.toml:1: limits.open_files: 15 is out of range: write 16 to 1048576");
    assert_snapshot!(refusal("limits.file_size = '0B'"), @"tenant.toml:1: limits.file_size: 0B is out of range: write 1B to 1024TiB");
    assert_snapshot!(refusal("limits.output = '0B'"), @"tenant.toml:1: limits.output: 0B is out of range: write 1B to 1024TiB");
    assert_snapshot!(refusal("limits.cores = 0"), @"tenant.toml:1: limits.cores: 0 is out of range: write 0.01 to 8192");
    assert_snapshot!(refusal("limits.cores = 0.004"), @"tenant.toml:1: limits.cores: 0.004 is out of range: write 0.01 to 8192");
    assert_snapshot!(refusal("limits.cores = 0.0105"), @"tenant.toml:1: limits.cores: 0.0105 is not a whole number of thousandths of a processor: use at most three decimals");
    assert_snapshot!(refusal("limits.cores = 1.9999"), @"tenant.toml:1: limits.cores: 1.9999 is not a whole number of thousandths of a processor: use at most three decimals");
    assert_snapshot!(refusal("limits.cores = -0.5"), @"tenant.toml:1: limits.cores: -0.5 is not a number of processors: write a number above 0, such as 0.5 or 2");
    assert_snapshot!(refusal("limits.cores = nan"), @"tenant.toml:1: limits.cores: NaN is not a number of processors: write a number above 0, such as 0.5 or 2");
    assert_snapshot!(refusal("limits.cores = inf"), @"tenant.toml:1: limits.cores: inf is not a number of processors: write a number above 0, such as 0.5 or 2");
    assert_snapshot!(refusal("filesystem.work_size = '0B'"), @"tenant.toml:1: filesystem.work_size: 0B is out of range: write 4KiB to 1024TiB");
    assert_snapshot!(refusal("filesystem.work_inodes = 0"), @"tenant.toml:1: filesystem.work_inodes: 0 is out of range: write 16 to 4294967295");
    assert_snapshot!(refusal("filesystem.tmp_size = '4095B'"), @"tenant.toml:1: filesystem.tmp_size: 4095B is out of range: write 4KiB to 1024TiB");
    assert_snapshot!(refusal("filesystem.tmp_inodes = 15"), @"tenant.toml:1: filesystem.tmp_inodes: 15 is out of range: write 16 to 4294967295");
}

#[test]
fn values_of_the_wrong_type_are_refused() {
    assert_snapshot!(refusal("limits = 5"), @"tenant.toml:1: limits: integer `5` is the wrong type: write one of its keys, such as `limits.wall`");
    assert_snapshot!(refusal("[[limits]]\nwall = '1s'"), @"tenant.toml:1: limits: a list is the wrong type: write one of its keys, such as `limits.wall`");
    assert_snapshot!(refusal("network = ['none']"), @"tenant.toml:1: network: a list is the wrong type: write one of its keys, such as `network.mode`");
    assert_snapshot!(refusal("limits.pids = '64'"), @r#"tenant.toml:1: limits.pids: string "64" is the wrong type: write a whole number without quotes, such as 64"#);
    assert_snapshot!(refusal("limits.pids = 1.5"), @"tenant.toml:1: limits.pids: floating point `1.5` is the wrong type: write a whole number without quotes, such as 64");
    assert_snapshot!(refusal("limits.cores = 'two'"), @r#"tenant.toml:1: limits.cores: string "two" is the wrong type: write a number of processors without quotes, such as 0.5 or 2"#);
    assert_snapshot!(refusal("filesystem.read = '/srv'"), @r#"tenant.toml:1: filesystem.read: string "/srv" is the wrong type: write a list in brackets, such as ["a", "b"]"#);
    assert_snapshot!(refusal("filesystem.read = ['/srv/a', 5]"), @r#"tenant.toml:1: filesystem.read: integer `5` is the wrong type: write a path in quotes, such as "/srv/data""#);
    assert_snapshot!(refusal("filesystem.proc = 'yes'"), @r#"tenant.toml:1: filesystem.proc: string "yes" is the wrong type: write true or false without quotes"#);
    assert_snapshot!(refusal("python.preload = [['numpy']]"), @r#"tenant.toml:1: python.preload: a list is the wrong type: write a module name in quotes, such as "numpy""#);
    assert_snapshot!(refusal("env.set = ['A=1']"), @r#"tenant.toml:1: env.set: a list is the wrong type: write a table, such as { NAME = "value" }"#);
    assert_snapshot!(refusal("env.set.A = 5"), @"tenant.toml:1: env.set.A: integer `5` is the wrong type: write a text in quotes");
    assert_snapshot!(refusal("assurance.require = true"), @r#"tenant.toml:1: assurance.require: boolean `true` is the wrong type: write one of "landlock" "standard" "full""#);
    assert_snapshot!(refusal("extends = 5"), @"tenant.toml:1: extends: integer `5` is the wrong type: write a text in quotes");
}

#[test]
fn unknown_words_are_rejected() {
    assert_snapshot!(refusal("assurance.require = 'ful'"), @r#"tenant.toml:1: assurance.require: "ful" is not known: did you mean "full"? Write "landlock" or "standard" or "full""#);
    assert_snapshot!(refusal("assurance.require = 'maximal'"), @r#"tenant.toml:1: assurance.require: "maximal" is not known: write "landlock" or "standard" or "full""#);
    assert_snapshot!(refusal("filesystem.system = 'program'"), @r#"tenant.toml:1: filesystem.system: "program" is not known: did you mean "programs"? Write "programs" or "libraries""#);
    assert_snapshot!(refusal("network.mode = 'host'"), @r#"tenant.toml:1: network.mode: "host" is not known: write "none" or "loopback" or "allow""#);
    assert_snapshot!(refusal("stdio.stdin = 'open'"), @r#"tenant.toml:1: stdio.stdin: "open" is not known: write "closed" or "pass""#);
}

#[test]
fn paths_that_cannot_be_shown_are_refused() {
    assert_snapshot!(refusal("[filesystem]\nread = [\n  '/srv/a',\n  '../../../..',\n]"), @r#"tenant.toml:4: filesystem.read: "/" would expose the whole host to the guest: name the directories that it needs"#);
    assert_snapshot!(refusal("filesystem.write = ['~/out']"), @r#"tenant.toml:1: filesystem.write: "~/out" starts with `~`, which only a shell expands: write out the home directory"#);
    assert_snapshot!(refusal("filesystem.read = ['/srv/../etc']"), @r#"tenant.toml:1: filesystem.read: "/srv/../etc" contains `..`: write the path without it"#);
    assert_snapshot!(refusal("filesystem.read = ['/']"), @r#"tenant.toml:1: filesystem.read: "/" would expose the whole host to the guest: name the directories that it needs"#);
    assert_snapshot!(refusal("filesystem.write = ['/proc/self']"), @r#"tenant.toml:1: filesystem.write: "/proc/self" is in the sandbox's own /proc, which never shows the host's /proc: remove the path"#);
    assert_snapshot!(refusal("filesystem.write = ['/tmp']"), @r#"tenant.toml:1: filesystem.write: "/tmp" is the session's own directory in the sandbox: name a directory beneath or next to it"#);
    assert_snapshot!(refusal("filesystem.read = ['']"), @r#"tenant.toml:1: filesystem.read: "" is not a path: write an absolute path, such as "/srv/data""#);
    assert_snapshot!(refusal("python.path = ['../../..']"), @r#"tenant.toml:1: python.path: "/" would expose the whole host to the guest: name the directories that it needs"#);
}

#[test]
fn read_only_inside_writable_is_refused() {
    assert_snapshot!(refusal("[filesystem]\nread = ['/srv/data/in']\nwrite = ['/srv/data']"), @r#"tenant.toml:2: filesystem.read: "/srv/data/in" is to be read-only, but tenant.toml:3 makes "/srv/data" writable: remove one of the two"#);
    assert_snapshot!(refusal("[filesystem]\nwrite = ['/srv/data']\nread = ['/srv/data']"), @r#"tenant.toml:3: filesystem.read: "/srv/data" is to be read-only, but tenant.toml:2 makes "/srv/data" writable: remove one of the two"#);
    assert_snapshot!(refusal("[python]\npath = ['./lib']\n[filesystem]\nwrite = ['/home/user']"), @r#"tenant.toml:2: python.path: "/home/user/lib" is to be read-only, but tenant.toml:4 makes "/home/user" writable: remove one of the two"#);
}

#[test]
fn duplicates_are_refused() {
    assert_snapshot!(refusal("[filesystem]\nread = [\n  '/srv/data',\n  '/srv/data/',\n]"), @r#"tenant.toml:4: filesystem.read: "/srv/data" is already in this list at tenant.toml:3: remove it here"#);
    assert_snapshot!(refusal("filesystem.write = ['/srv/a', '/srv/b', '/srv/a']"), @r#"tenant.toml:1: filesystem.write: "/srv/a" is already in this list at tenant.toml:1: remove it here"#);
    assert_snapshot!(refusal("python.preload = ['numpy', 'pandas', 'numpy?']"), @r#"tenant.toml:1: python.preload: "numpy" is already in this list at tenant.toml:1: remove it here"#);
    assert_snapshot!(refusal("[python]\npath = ['lib',\n './lib']"), @r#"tenant.toml:3: python.path: "/home/user/lib" is already in this list at tenant.toml:2: remove it here"#);
    assert_snapshot!(refusal("imports.allow = ['math', 'math']"), @r#"tenant.toml:1: imports.allow: "math" is already in this list at tenant.toml:1: remove it here"#);
    assert_snapshot!(refusal("env.pass = ['A', 'A']"), @r#"tenant.toml:1: env.pass: "A" is already in this list at tenant.toml:1: remove it here"#);
    assert_snapshot!(refusal("syscalls.allow = ['ptrace', 'ptrace']"), @r#"tenant.toml:1: syscalls.allow: "ptrace" is already in this list at tenant.toml:1: remove it here"#);
    assert_snapshot!(refusal("syscalls.deny = ['ptrace', 'ptrace']"), @r#"tenant.toml:1: syscalls.deny: "ptrace" is already in this list at tenant.toml:1: remove it here"#);
}

#[test]
fn names_of_modules_are_checked() {
    assert_snapshot!(refusal("python.preload = ['num py']"), @r#"tenant.toml:1: python.preload: "num py" is not a module name: write it as in an import statement, such as "numpy" or "numpy.linalg""#);
    assert_snapshot!(refusal("imports.allow = ['num*']"), @r#"tenant.toml:1: imports.allow: "num*" is not an import pattern: write "numpy" for one module, "numpy.*" for it and all beneath it, or "*" for every module"#);
    assert_snapshot!(refusal("imports.allow = ['math', '*']"), @r#"tenant.toml:1: imports.allow: "*" allows every module and tenant.toml:1 allows "math": remove one of the two"#);
}

#[test]
fn interpreters_without_a_name_are_refused() {
    assert_snapshot!(refusal("python.interpreter = ''"), @r#"tenant.toml:1: python.interpreter: the interpreter's name is empty: write "python3", or the path of an interpreter or a virtual environment"#);
    assert_snapshot!(refusal("python.interpreter = '  '"), @r#"tenant.toml:1: python.interpreter: the interpreter's name is empty: write "python3", or the path of an interpreter or a virtual environment"#);
    assert_snapshot!(refusal("python.interpreter = '~/venv'"), @r#"tenant.toml:1: python.interpreter: "~/venv" starts with `~`, which only a shell expands: write out the home directory"#);
}

#[test]
fn variables_are_checked() {
    assert_snapshot!(refusal("env.set.'A B' = 'x'"), @r#"tenant.toml:1: env.set: "A B" is not the name of a variable: use letters, digits and `_`, and no digit first"#);
    assert_snapshot!(refusal("env.pass = ['1A']"), @r#"tenant.toml:1: env.pass: "1A" is not the name of a variable: use letters, digits and `_`, and no digit first"#);
    assert_snapshot!(refusal("env.pass = ['']"), @r#"tenant.toml:1: env.pass: "" is not the name of a variable: use letters, digits and `_`, and no digit first"#);
    assert_snapshot!(refusal("[env]\nset = { A = 'x' }\npass = ['A']"), @r#"tenant.toml:3: env.pass: "A" is taken from the caller here and set at tenant.toml:2: remove one of the two"#);
    assert_snapshot!(refusal(r#"env.set.A = "a\u0000b""#), @"tenant.toml:1: env.set.A: the value contains a NUL byte, which an environment variable cannot hold: remove it");
}

#[test]
fn a_call_both_allowed_and_denied_is_refused() {
    assert_snapshot!(refusal("[syscalls]\nallow = ['ptrace']\ndeny = ['bpf', 'ptrace']"), @r#"tenant.toml:2: syscalls.allow: "ptrace" is allowed here and denied at tenant.toml:3: remove one, or extend a policy that does not deny it"#);
    assert_snapshot!(refusal("extends = 'strict'\n\n[syscalls]\nallow = ['execve']"), @r#"tenant.toml:4: syscalls.allow: "execve" is allowed here and denied at built-in strict:41: remove one, or extend a policy that does not deny it"#);
}

#[test]
fn text_that_is_not_toml_is_refused() {
    assert_snapshot!(refusal("[limits\nwall = '2s'"), @"tenant.toml:1: this is not valid TOML (unclosed table, expected `]`): fix the syntax here");
    assert_snapshot!(refusal("limits.wall = 2s"), @"tenant.toml:1: this is not valid TOML (string values must be quoted, expected literal string): fix the syntax here");
    assert_snapshot!(refusal("[limits]\nwall = '2s'\nwall = '3s'"), @"tenant.toml:3: this is not valid TOML (duplicate key): fix the syntax here");
    assert_snapshot!(refusal("limits.wall = '2s"), @"tenant.toml:1: this is not valid TOML (invalid literal string, expected `'`): fix the syntax here");
    assert_snapshot!(refusal("\n\n= 5"), @"tenant.toml:3: this is not valid TOML (unquoted keys cannot be empty, expected letters, numbers, `-`, `_`): fix the syntax here");
}

#[test]
fn hosts_that_cannot_be_allowed_are_refused() {
    let allow = |entry: &str| {
        refusal(&format!(
            "[network]\nmode = 'allow'\nallow = [\n{entry},\n]"
        ))
    };
    assert_snapshot!(allow("'*'"), @r#"tenant.toml:4: network.allow: "*": this pattern would allow every host: name the hosts, or the domains as in "*.example.org""#);
    assert_snapshot!(allow("'*.com'"), @r#"tenant.toml:4: network.allow: "*.com" covers a whole top-level domain: name a domain, as in "*.example.org", or write `private = true` for a network of your own"#);
    assert_snapshot!(allow("'https://a.example'"), @r#"tenant.toml:4: network.allow: "https://a.example": ":" does not belong to a host: write the name alone, such as "api.github.com", and ports in `ports`"#);
    assert_snapshot!(allow("'a.example:443'"), @r#"tenant.toml:4: network.allow: "a.example:443": ":" does not belong to a host: write the name alone, such as "api.github.com", and ports in `ports`"#);
    assert_snapshot!(allow("'10.0.0.1'"), @r#"tenant.toml:4: network.allow: "10.0.0.1" is an address of a private network: write `private = true` to allow it"#);
    assert_snapshot!(allow("{ hots = 'a.example' }"), @"tenant.toml:4: network.allow: `hots` is not a key of an entry: did you mean `host`?");
    assert_snapshot!(allow("{ ports = [443] }"), @r#"tenant.toml:4: network.allow: an entry needs a host: write { host = "api.github.com" }"#);
    assert_snapshot!(allow("{ host = 'a.example', ports = 443 }"), @r#"tenant.toml:4: network.allow: "a.example": `ports`: integer `443` is the wrong type: write a list of numbers, such as [443]"#);
    assert_snapshot!(allow("{ host = 'a.example', ports = [70000] }"), @r#"tenant.toml:4: network.allow: "a.example": a port is a number of 1 to 65535: write `ports = [443]`, or leave `ports` out for 80 and 443"#);
    assert_snapshot!(allow("{ host = 'a.example', raw = true, methods = ['GET'] }"), @r#"tenant.toml:4: network.allow: "a.example": `raw = true` lets any bytes through, so nothing can be required of requests: remove `raw` or `methods`"#);
    assert_snapshot!(allow("{ host = 'a.example', credential = 'token' }"), @r#"tenant.toml:4: network.allow: "a.example": `credential`: string "token" is the wrong type: write a table, such as { header = "Authorization", value = "Bearer ${TOKEN}" }"#);
    assert_snapshot!(allow("{ host = 'a.example', credential = { header = 'X', value = '${TOKEN' } }"), @r#"tenant.toml:4: network.allow: "a.example": unterminated reference: write `${NAME}` for a variable of your environment, or `${file:/path}`"#);
    assert_snapshot!(allow("7"), @r#"tenant.toml:4: network.allow: integer `7` is the wrong type: write a name or an address in quotes, such as "api.github.com""#);
    assert_snapshot!(allow("'a.example',\n{ host = 'a.example', raw = true }"), @r#"tenant.toml:5: network.allow: "a.example" is allowed at tenant.toml:4 too, with another `raw` for the same port: write `raw` in both or in none"#);
    for list in ["methods", "paths"] {
        let refused = allow(&format!("{{ host = 'a.example', {list} = [] }}"));
        assert!(
            refused.contains(&format!("\"a.example\": `{list}` is empty")),
            "{refused}"
        );
    }
    assert_snapshot!(refusal("network.allow.remove = ['a.example']"), @r#"tenant.toml:1: network.allow: no policy that this one builds on has "a.example" in this list: remove it from `remove`"#);
}

#[test]
fn invalid_proxies_and_resolvers_are_rejected() {
    assert_snapshot!(refusal("network.proxy = 'socks5://proxy'"), @r#"tenant.toml:1: network.proxy: "socks5://proxy" is not the URL of a proxy: write one such as "http://proxy.example.org:3128""#);
    assert_snapshot!(refusal("network.proxy = 'http://me:secret@a b'"), @r#"tenant.toml:1: network.proxy: "a b" is not the URL of a proxy: write one such as "http://proxy.example.org:3128""#);
    assert_snapshot!(refusal("network.resolver = 'dns.example'"), @r#"tenant.toml:1: network.resolver: "dns.example" is not the address of a resolver: write one such as "10.0.0.53" or "[::1]:53""#);
}
