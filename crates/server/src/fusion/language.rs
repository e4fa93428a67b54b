//! The languages: how the code of each becomes a program of the sandbox. Pure.

use serde::Deserialize;

/// The language of a request. A host may lack the programs of some.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// Some clients leave it out.
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

/// How code becomes a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// The sandbox's interpreter runs it.
    Interpreter,
    /// The interpreter runs this module with the file.
    Module(&'static str),
    /// A program of the host runs the file.
    Program(&'static [&'static str]),
    /// A compiler makes a program of the file, which then runs in a sandbox of its own.
    Compiled(&'static [&'static str]),
}

/// The program that a compiler makes.
pub const COMPILED: &str = "main";

impl Language {
    /// The file that the code is put in, and how it runs.
    pub const fn program(self) -> (&'static str, Way) {
        match self {
            Self::Python => ("main.py", Way::Interpreter),
            Self::Pytest => ("test_main.py", Way::Module("pytest")),
            Self::Bash => ("main.sh", Way::Program(&["bash"])),
            Self::Nodejs => ("main.js", Way::Program(&["node"])),
            Self::Typescript => ("main.ts", Way::Program(&["tsx"])),
            Self::Cpp => (
                "main.cpp",
                Way::Compiled(&["g++", "-std=c++17", "main.cpp", "-o", COMPILED]),
            ),
            Self::Go => (
                "main.go",
                Way::Compiled(&["go", "build", "-o", COMPILED, "main.go"]),
            ),
            Self::GoTest => ("main_test.go", Way::Program(&["go", "test"])),
            Self::Rust => (
                "main.rs",
                Way::Compiled(&["rustc", "-O", "main.rs", "-o", COMPILED]),
            ),
            Self::Java => ("Main.java", Way::Program(&["java"])),
            Self::Perl => ("main.pl", Way::Program(&["perl"])),
            Self::Php => ("main.php", Way::Program(&["php"])),
            Self::Ruby => ("main.rb", Way::Program(&["ruby"])),
            Self::Lua => ("main.lua", Way::Program(&["lua"])),
            Self::Julia => ("main.jl", Way::Program(&["julia"])),
            Self::R => ("main.R", Way::Program(&["Rscript"])),
        }
    }
}
