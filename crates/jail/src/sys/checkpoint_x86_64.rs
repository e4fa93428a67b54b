//! Suspends and restores a process on x86-64.

use std::arch::{asm, global_asm, naked_asm};
use std::ffi::c_void;

use nix::errno::Errno;

use super::{ResumePoint, failure, header};

/// Saves the callee-saved registers, calls a function, and returns 0. A process whose memory was replaced by the copy
/// returns from here as well, with 1.
///
/// Every callee-saved register is on the stack, so the stack pointer and the address of the second return path suffice
/// to resume (System V ABI, AMD64, 3.2).
#[unsafe(naked)]
pub unsafe extern "C" fn suspend_at(
    place: *mut ResumePoint,
    call: extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> u64 {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 24",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        "lea rax, [rip + 20f]",
        "mov [rdi + 8], rax",
        "mov rdi, rdx",
        "call rsi",
        "xor eax, eax",
        "jmp 30f",
        "20:",
        "mov eax, 1",
        "30:",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 24",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

// The restoring code. Its only argument is the address of the header, in rdi. It uses neither a stack nor data of its
// own. A system call clobbers rax, rcx and r11, so values that must survive one are in other registers: rbp holds the
// header, rbx the step, r12 the end of the steps, and r14 the descriptor that the steps have opened.
global_asm!(
    ".pushsection .text.sandfork_restorer,\"ax\",@progbits",
    ".balign 64",
    ".hidden sandfork_restorer",
    ".globl sandfork_restorer",
    "sandfork_restorer:",
    "cld",
    "mov rbp, rdi",
    "mov rbx, [rbp + 32]",
    "mov r12, [rbp + 40]",
    "xor r14d, r14d",
    // The next step.
    "20:",
    "cmp rbx, r12",
    "jae 90f",
    "movzx eax, word ptr [rbx]",
    "cmp eax, 1",
    "je 40f",
    "cmp eax, 2",
    "je 60f",
    // A system call.
    "mov eax, [rbx + 4]",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "mov r9, [rbx + 48]",
    "movzx ecx, word ptr [rbx + 2]",
    "test ecx, 1",
    "cmovnz rdi, r14",
    "test ecx, 2",
    "cmovnz r8, r14",
    "syscall",
    "cmp rax, -4095",
    "jae 80f",
    "movzx ecx, word ptr [rbx + 2]",
    "test ecx, 4",
    "cmovnz r14, rax",
    "test ecx, 8",
    "jz 30f",
    "cmp rax, [rbx + 56]",
    // ENOMEM: the kernel provided less than requested.
    "mov eax, -12",
    "jne 80f",
    "30:",
    "add rbx, 64",
    "jmp 20b",
    // Copies the pages that differ.
    "40:",
    "mov r8, [rbx + 8]",
    "mov r9, [rbx + 16]",
    "mov r10, [rbx + 24]",
    "41:",
    "test r9, r9",
    "jz 30b",
    "xor ecx, ecx",
    "42:",
    "movdqa xmm0, [r10 + rcx]",
    "movdqa xmm1, [r10 + rcx + 16]",
    "movdqa xmm2, [r10 + rcx + 32]",
    "movdqa xmm3, [r10 + rcx + 48]",
    "pcmpeqb xmm0, [r8 + rcx]",
    "pcmpeqb xmm1, [r8 + rcx + 16]",
    "pcmpeqb xmm2, [r8 + rcx + 32]",
    "pcmpeqb xmm3, [r8 + rcx + 48]",
    "pand xmm0, xmm1",
    "pand xmm2, xmm3",
    "pand xmm0, xmm2",
    "pmovmskb eax, xmm0",
    "cmp eax, 0xffff",
    "jne 43f",
    "add ecx, 64",
    "cmp ecx, 4096",
    "jb 42b",
    "jmp 44f",
    "43:",
    "mov rsi, r10",
    "mov rdi, r8",
    "mov ecx, 512",
    "rep movsq",
    "44:",
    "add r8, 4096",
    "add r10, 4096",
    "sub r9, 4096",
    "jmp 41b",
    // Touches an address, so that the stack grows down to it.
    "60:",
    "mov r8, [rbx + 8]",
    "mov al, [r8]",
    "mov [r8], al",
    "jmp 30b",
    // Reports the errno and the number of the step, and exits. Digits are written backwards from the last one.
    "80:",
    "neg eax",
    "mov ecx, 10",
    "lea r8, [rbp + {errno}]",
    "81:",
    "xor edx, edx",
    "div ecx",
    "add dl, 48",
    "mov [r8], dl",
    "dec r8",
    "test eax, eax",
    "jnz 81b",
    "mov rax, rbx",
    "sub rax, [rbp + 32]",
    "shr rax, 6",
    "lea r8, [rbp + {step}]",
    "82:",
    "xor edx, edx",
    "div ecx",
    "add dl, 48",
    "mov [r8], dl",
    "dec r8",
    "test eax, eax",
    "jnz 82b",
    "mov edi, [rbp + 48]",
    "lea rsi, [rbp + {frame}]",
    "mov edx, {length}",
    "mov eax, 1",
    "syscall",
    "mov edi, 1",
    "mov eax, 231",
    "syscall",
    "ud2",
    // Resumes at the resume point.
    "90:",
    "mov rdi, [rbp]",
    "mov rax, [rbp + 8]",
    "mov [rdi + 16], rax",
    "mov rax, [rbp + 16]",
    "mov [rdi + 24], rax",
    "mov rax, [rbp + 24]",
    "mov [rdi + 32], rax",
    "mov rsp, [rdi]",
    "jmp qword ptr [rdi + 8]",
    ".hidden sandfork_restorer_end",
    ".globl sandfork_restorer_end",
    "sandfork_restorer_end:",
    ".popsection",
    errno = const header::FRAME + failure::ERRNO,
    step = const header::FRAME + failure::STEP,
    frame = const header::FRAME,
    length = const failure::FRAME.len(),
);

unsafe extern "C" {
    static sandfork_restorer: u8;
    static sandfork_restorer_end: u8;
}

/// Returns the bytes of the restoring code.
pub fn restorer() -> &'static [u8] {
    let (start, end) = (
        &raw const sandfork_restorer,
        &raw const sandfork_restorer_end,
    );
    // SAFETY: both symbols are in one section of this library's text, in this order.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// Jumps to the restoring code at `start`, with the header at `header`. Does not return.
///
/// # Safety
///
/// The restoring code must be mapped at `start`, and `header` must refer to steps that do not touch the code, the
/// header or the steps.
pub unsafe fn enter(start: u64, header: u64, stack: u64) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller. The stack pointer is within the blob; nothing is pushed.
    unsafe {
        asm!(
            "mov rsp, {stack}",
            "jmp {start}",
            stack = in(reg) stack,
            start = in(reg) start,
            in("rdi") header,
            options(noreturn),
        )
    }
}
