//! Level `landlock` in the kernel, as root and as an ordinary user, on a host without namespaces.

mod situation;

fn main() {
    let mut arguments = std::env::args();
    if arguments.nth(1).as_deref() == Some(situation::FLAG) {
        situation::main(arguments);
    }
}
