//! The supported languages, and how their code is executed. Does no I/O.

use serde::Deserialize;

/// The language of a request. The host may lack the programs of some languages.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// The default, because some clients omit the field.
    #[default]
    Python,
    Pytest,
    Bash,
    Nodejs,
    Typescript,
    Cpp,
    Go,
    GoTest,
    Rust,
    Java,
    Perl,
    Php,
    Ruby,
    Lua,
    Julia,
    #[serde(rename = "R")]
    R,
}

/// How code is executed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Launch {
    /// By the sandbox's interpreter.
    Interpreter,
    /// By this Python module, with the file as its argument.
    Module(&'static str),
    /// By a program of the host, with the file as its argument.
    Program(&'static [&'static str]),
    /// By a compiler, whose output then runs in a separate sandbox.
    Compiled(&'static [&'static str]),
}

/// The file name of the compiler's output.
pub const COMPILED: &str = "main";

impl Language {
    /// Returns the file name of the source, and how it is executed.
    pub const fn program(self) -> (&'static str, Launch) {
        match self {
            Self::Python => ("main.py", Launch::Interpreter),
            Self::Pytest => ("test_main.py", Launch::Module("pytest")),
            Self::Bash => ("main.sh", Launch::Program(&["bash"])),
            Self::Nodejs => ("main.js", Launch::Program(&["node"])),
            Self::Typescript => ("main.ts", Launch::Program(&["tsx"])),
            Self::Cpp => (
                "main.cpp",
                Launch::Compiled(&["g++", "-std=c++17", "main.cpp", "-o", COMPILED]),
            ),
            Self::Go => (
                "main.go",
                Launch::Compiled(&["go", "build", "-o", COMPILED, "main.go"]),
            ),
            Self::GoTest => ("main_test.go", Launch::Program(&["go", "test"])),
            Self::Rust => (
                "main.rs",
                Launch::Compiled(&["rustc", "-O", "main.rs", "-o", COMPILED]),
            ),
            Self::Java => ("Main.java", Launch::Program(&["java"])),
            Self::Perl => ("main.pl", Launch::Program(&["perl"])),
            Self::Php => ("main.php", Launch::Program(&["php"])),
            Self::Ruby => ("main.rb", Launch::Program(&["ruby"])),
            Self::Lua => ("main.lua", Launch::Program(&["lua"])),
            Self::Julia => ("main.jl", Launch::Program(&["julia"])),
            Self::R => ("main.R", Launch::Program(&["Rscript"])),
        }
    }
}
