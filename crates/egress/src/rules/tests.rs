use super::*;

fn rule(json: &str) -> Rule {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn rules(json: &[&str]) -> Rules {
    Rules::new(json.iter().map(|json| rule(json)).collect()).expect("no contradiction")
}

fn host(text: &str) -> Host {
    text.parse().expect("a host")
}

#[test]
fn rules_survive_a_round_trip() {
    for text in [
        r#"{"host":"api.github.com"}"#,
        r#"{"host":"*.pypi.org","ports":[443]}"#,
        r#"{"host":"a.b","methods":["GET","POST"],"paths":["/x/*"],"credential":{"header":"X-Key","value":"${KEY}"}}"#,
        r#"{"host":"db.internal","ports":[5432],"private":true,"raw":true}"#,
        r#"{"host":"169.254.169.254","private":true}"#,
    ] {
        assert_eq!(serde_json::to_string(&rule(text)).expect("JSON"), text);
        let shown = rule(text).to_string();
        assert_eq!(shown.parse(), Ok(rule(text)), "{shown}");
    }
    assert_eq!(rule(r#"{"host":"A.b"}"#).to_string(), "a.b");
}

#[test]
fn each_error_has_its_message() {
    let refused = |json: &str| match serde_json::from_str::<Rule>(json) {
        Ok(_) => panic!("{json} is accepted"),
        Err(error) => error.to_string(),
    };
    let table = [
        (r#"{"host":"*"}"#, "would allow every host"),
        (r#"{"host":"*.com"}"#, "top-level domain"),
        (
            r#"{"host":"10.0.0.1"}"#,
            "\"10.0.0.1\" is an address of a private network: write `private = true`",
        ),
        (r#"{"host":"127.0.0.1"}"#, "an address of this machine"),
        (r#"{"host":"169.254.169.254"}"#, "metadata service"),
        (
            r#"{"host":"0.0.0.0","private":true}"#,
            "not the address of a single host",
        ),
        (r#"{"host":"2130706433"}"#, "cannot end in a number"),
        (r#"{"host":"a.b:443"}"#, "\":\" does not belong to a host"),
        (r#"{"host":"a.b","ports":[]}"#, "a port is a number"),
        (r#"{"host":"a.b","ports":[0]}"#, "a port is a number"),
        (
            r#"{"host":"a.b","methods":["get"]}"#,
            "\"get\" is not an HTTP method",
        ),
        (
            r#"{"host":"a.b","methods":["CONNECT"]}"#,
            "\"CONNECT\" is not an HTTP method",
        ),
        (r#"{"host":"a.b","paths":["x"]}"#, "begin it with `/`"),
        (
            r#"{"host":"a.b","raw":true,"methods":["GET"]}"#,
            "remove `raw` or `methods`",
        ),
        (
            r#"{"host":"a.b","raw":true,"paths":["/"]}"#,
            "remove `raw` or `paths`",
        ),
        (
            r#"{"host":"a.b","raw":true,"credential":{"header":"A","value":"b"}}"#,
            "remove `raw` or `credential`",
        ),
        (
            r#"{"host":"a.b","credential":{"header":"Host","value":"b"}}"#,
            "\"Host\" is not a header",
        ),
        (
            r#"{"host":"a.b","credential":{"header":"A b","value":"b"}}"#,
            "\"A b\" is not a header",
        ),
        (
            r#"{"host":"a.b","credential":{"header":"Proxy-Authorization","value":"b"}}"#,
            "is not a header that can be set",
        ),
        (
            r#"{"host":"a.b","credential":{"header":"A","value":"b\r\nc"}}"#,
            "no control characters",
        ),
        (r#"{"host":"a.b","port":1}"#, "unknown field `port`"),
    ];
    for (json, expected) in table {
        let message = refused(json);
        assert!(message.contains(expected), "{json}: {message}");
    }
}

#[test]
fn all_errors_of_an_entry_are_reported() {
    let text = RuleText {
        host: "a.b:443".to_owned(),
        ports: Some(vec![0]),
        methods: vec!["get".to_owned(), "GET".to_owned(), "put".to_owned()],
        paths: vec!["x".to_owned(), "/..".to_owned()],
        credential: Some(Credential {
            header: "Host".to_owned(),
            value: "b".to_owned(),
        }),
        raw: true,
        ..RuleText::default()
    };
    let errors = Rule::new(text).expect_err("mistakes");
    assert_eq!(errors.len(), 1 + 1 + 2 + 2 + 1 + 3, "{errors:?}");
}

#[test]
fn without_rules_nothing_is_allowed() {
    let rules = Rules::default();
    assert_eq!(
        rules.access(&host("a.b"), 443).map(drop),
        Err(Refusal::Host)
    );
    assert!(!rules.knows(&host("a.b")));
}

#[test]
fn most_specific_host_pattern_decides() {
    let rules = rules(&[
        r#"{"host":"*.b.c"}"#,
        r#"{"host":"*.a.b.c","ports":[8080]}"#,
        r#"{"host":"x.a.b.c","methods":["GET"]}"#,
        r#"{"host":"x.a.b.c","methods":["PUT"],"paths":["/put/*"]}"#,
    ]);
    let access = |name: &str, port| rules.access(&host(name), port);
    assert!(access("y.b.c", 443).is_ok());
    assert_eq!(access("b.c", 443).map(drop), Err(Refusal::Host));
    assert_eq!(access("y.a.b.c", 443).map(drop), Err(Refusal::Port));
    assert!(access("y.a.b.c", 8080).is_ok());
    let exact = access("x.a.b.c", 443).expect("the rules allow it");
    assert!(exact.inspects_requests());
    let request = |method, path| exact.request(method, path).map(drop);
    assert_eq!(request("GET", "/anything?a=b"), Ok(()));
    assert_eq!(request("GET", "/a/../b"), Err(Refusal::Path));
    assert_eq!(request("PUT", "/put/x"), Ok(()));
    assert_eq!(request("PUT", "/put/../x"), Err(Refusal::Path));
    assert_eq!(request("PUT", "/x"), Err(Refusal::Path));
    assert_eq!(request("POST", "/put/x"), Err(Refusal::Method));
    assert_eq!(request("CONNECT", "/"), Err(Refusal::Method));
    assert_eq!(request("get", "/"), Err(Refusal::Method));
}

#[test]
fn first_rule_that_allows_a_request_sets_its_credential() {
    let rules = rules(&[
        r#"{"host":"a.b","paths":["/public/*"]}"#,
        r#"{"host":"a.b","methods":["GET"],"credential":{"header":"X","value":"read"}}"#,
        r#"{"host":"a.b","methods":["POST"],"credential":{"header":"X","value":"write"}}"#,
        r#"{"host":"a.b","methods":["HEAD"]}"#,
    ]);
    let access = rules.access(&host("a.b"), 443).expect("the rules allow it");
    let value = |method, path| {
        let credential = access.request(method, path).expect("the rules allow it");
        credential.map(|credential| credential.value.as_str())
    };
    assert_eq!(value("GET", "/"), Some("read"));
    assert_eq!(value("POST", "/"), Some("write"));
    assert_eq!(value("HEAD", "/"), None);
    assert_eq!(value("GET", "/public/x"), None);
}

/// Paths that some server reads as `/echo/h`: a server that resolves dots, merges slashes, decodes twice, cuts segments
/// or ignores case.
const SPELLINGS_OF_ECHO: [&str; 16] = [
    "/./echo/h",
    "/x/../echo/h",
    "/echo%2fh",
    "/echo/%2e/h",
    "/x/%2e%2E/echo/h",
    "/x/..;/echo/h",
    "/x/..%20/echo/h",
    "//echo/h",
    "/echo//h",
    "\\echo\\h",
    "/%2565cho/h",
    "/ECHO/h",
    "/echo;x/h",
    "/;x/echo/h",
    "/echo./h",
    "/echo%20/h",
];

#[test]
fn path_spellings_do_not_bypass_an_earlier_rule() {
    let keeps_off = r#"{"host":"a.b","paths":["/echo/*"]}"#;
    let other = r#"{"host":"a.b","paths":["/echo/*"],"credential":{"header":"X","value":"other"}}"#;
    let any = r#"{"host":"a.b","credential":{"header":"X","value":"ours"}}"#;
    let some = r#"{"host":"a.b","paths":["/*"],"credential":{"header":"X","value":"ours"}}"#;
    for (first, last) in [
        (keeps_off, any),
        (keeps_off, some),
        (other, any),
        (other, some),
    ] {
        let rules = rules(&[first, last]);
        let access = rules.access(&host("a.b"), 443).expect("the rules allow it");
        let value = |path| {
            let credential = access.request("GET", path)?;
            Ok(credential.map(|it| it.value.as_str()))
        };
        let of_echo = (first == other).then_some("other");
        assert_eq!(value("/echo/h"), Ok(of_echo));
        assert_eq!(value("/%65cho/h?x=//y/.."), Ok(of_echo));
        for path in SPELLINGS_OF_ECHO {
            assert_eq!(value(path), Err(Refusal::Path), "{path}");
        }
        for path in ["/", "/x/echo/h", "/echoes", "/a%20b/C.d/"] {
            assert_eq!(value(path), Ok(Some("ours")), "{path}");
        }
        // Some servers ignore a trailing slash.
        assert_eq!(value("/echo"), Err(Refusal::Path));
    }
}

#[test]
fn any_path_is_allowed_where_no_rule_has_paths() {
    let rules = rules(&[
        r#"{"host":"a.b.c","methods":["GET"]}"#,
        r#"{"host":"a.b.c","credential":{"header":"X","value":"ours"}}"#,
        // A different port, and a less specific host.
        r#"{"host":"a.b.c","ports":[8080],"paths":["/echo/*"]}"#,
        r#"{"host":"*.b.c","paths":["/echo/*"]}"#,
    ]);
    let access = rules
        .access(&host("a.b.c"), 443)
        .expect("the rules allow it");
    for path in SPELLINGS_OF_ECHO.iter().chain(&["*", "/%ff"]) {
        for (method, expected) in [("GET", false), ("POST", true)] {
            let credential = access.request(method, path).expect("the rules allow it");
            assert_eq!(credential.is_some(), expected, "{method} {path}");
        }
    }
}

/// The request gets the same credential, or none, whichever of the rules it matches.
#[test]
fn similar_path_falls_to_a_rule_with_the_same_credential() {
    let credential = r#""credential":{"header":"X","value":"ours"}"#;
    let of_both = format!(r#"{{"host":"a.b","paths":["/a/*"],{credential}}}"#);
    let rules = rules(&[
        &of_both,
        &format!(r#"{{"host":"a.b","paths":["/A/*","/a"],{credential}}}"#),
        r#"{"host":"a.b","methods":["GET"]}"#,
    ]);
    let access = rules.access(&host("a.b"), 443).expect("the rules allow it");
    let gets = |path| access.request("GET", path).map(|it| it.is_some());
    for path in ["/a/x", "/A/x", "/a"] {
        assert_eq!(gets(path), Ok(true), "{path}");
    }
    for path in ["/a./x", "/B", "/b"] {
        assert_eq!(gets(path), Ok(false), "{path}");
    }
    assert_eq!(gets("/a//x"), Err(Refusal::Path));
}

#[test]
fn rules_for_one_host_and_port_must_agree() {
    let contradiction = |first: &str, second: &str| {
        let both = Rules::new(vec![rule(first), rule(second)]);
        both.err()
            .map(|found| (found.first, found.second, found.key))
    };
    let plain = r#"{"host":"a.b"}"#;
    let raw = r#"{"host":"a.b","ports":[443],"raw":true}"#;
    let private = r#"{"host":"a.b","private":true}"#;
    assert_eq!(contradiction(plain, raw), Some((0, 1, "raw")));
    assert_eq!(contradiction(plain, private), Some((0, 1, "private")));
    assert_eq!(
        contradiction(plain, r#"{"host":"a.b","ports":[22],"raw":true}"#),
        None
    );
    assert_eq!(contradiction(plain, r#"{"host":"*.a.b","raw":true}"#), None);
}

#[test]
fn debug_output_hides_the_credential() {
    let rule = rule(r#"{"host":"a.b","credential":{"header":"X-Key","value":"hunter2"}}"#);
    let shown = format!("{rule:?}");
    assert!(
        shown.contains("X-Key") && !shown.contains("hunter2"),
        "{shown}"
    );
}
