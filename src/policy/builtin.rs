//! The built-in policies.

/// A built-in policy.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct BuiltIn {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
}

/// The default policy, and the base of every chain of `extends`.
pub(super) static STANDARD: BuiltIn = BuiltIn {
    name: "standard",
    text: include_str!("../../policies/standard.toml"),
};

static STRICT: BuiltIn = BuiltIn {
    name: "strict",
    text: include_str!("../../policies/strict.toml"),
};

static DATA_SCIENCE: BuiltIn = BuiltIn {
    name: "data-science",
    text: include_str!("../../policies/data-science.toml"),
};

/// The built-in policies, most used first.
static ALL: [&BuiltIn; 3] = [&STANDARD, &STRICT, &DATA_SCIENCE];

/// Returns the built-in policy of that name.
pub(super) fn find(name: &str) -> Option<&'static BuiltIn> {
    ALL.into_iter().find(|builtin| builtin.name == name)
}

/// Returns the names of the built-in policies, most used first.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|builtin| builtin.name)
}
