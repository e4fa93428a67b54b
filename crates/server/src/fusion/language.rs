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
    /// The file that the code is put in.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Python => "main.py",
            Self::Pytest => "test_main.py",
            Self::Bash => "main.sh",
            Self::Nodejs => "main.js",
            Self::Typescript => "main.ts",
            Self::Cpp => "main.cpp",
            Self::Go => "main.go",
            Self::GoTest => "main_test.go",
            Self::Rust => "main.rs",
            Self::Java => "Main.java",
            Self::Perl => "main.pl",
            Self::Php => "main.php",
            Self::Ruby => "main.rb",
            Self::Lua => "main.lua",
            Self::Julia => "main.jl",
            Self::R => "main.R",
        }
    }

    /// How it runs.
    pub const fn way(self) -> Way {
        match self {
            Self::Python => Way::Interpreter,
            Self::Pytest => Way::Module("pytest"),
            Self::Bash => Way::Program(&["bash"]),
            Self::Nodejs => Way::Program(&["node"]),
            Self::Typescript => Way::Program(&["tsx"]),
            Self::Cpp => Way::Compiled(&["g++", "-std=c++17", "main.cpp", "-o", COMPILED]),
            Self::Go => Way::Compiled(&["go", "build", "-o", COMPILED, "main.go"]),
            Self::GoTest => Way::Program(&["go", "test"]),
            Self::Rust => Way::Compiled(&["rustc", "-O", "main.rs", "-o", COMPILED]),
            Self::Java => Way::Program(&["java"]),
            Self::Perl => Way::Program(&["perl"]),
            Self::Php => Way::Program(&["php"]),
            Self::Ruby => Way::Program(&["ruby"]),
            Self::Lua => Way::Program(&["lua"]),
            Self::Julia => Way::Program(&["julia"]),
            Self::R => Way::Program(&["Rscript"]),
        }
    }
}
