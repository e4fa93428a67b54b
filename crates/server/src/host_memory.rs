//! Warns about tenants whose sessions could need more memory than the host has.

use std::fs::read_to_string;
use std::sync::Arc;

use crate::config::Config;
use crate::sandboxes::Variant;
use crate::tenant::Tenant;

/// Logs a warning for each tenant whose sessions could together use more than the host's memory.
pub fn warn(config: &Config, tenants: &[Arc<Tenant>]) {
    // Without `/proc/meminfo`, nothing can be checked.
    let Some(total) = read_to_string("/proc/meminfo")
        .ok()
        .as_deref()
        .and_then(total_memory)
    else {
        return;
    };
    for tenant in tenants {
        let quota = &config.profile(&tenant.name).quota;
        let each = tenant.sandboxes.memory(Variant::default());
        let all = each.saturating_mul(quota.sessions as u64);
        let needed = quota.memory.map_or(all, |memory| memory.min(all));
        if needed > total {
            tracing::warn!(
                tenant = %tenant.name,
                "the tenant's {} sessions could use {needed} bytes of memory, but the host has only {total}: lower \
                 `sessions` or `limits.memory`, or set `memory`",
                quota.sessions
            );
        }
    }
}

/// Parses the total memory in bytes (`proc_meminfo(5)`).
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_memory_is_parsed_from_meminfo() {
        assert_eq!(
            total_memory("MemTotal:       16 kB\nMemFree: 1 kB\n"),
            Some(16 << 10)
        );
        assert_eq!(total_memory(""), None);
    }
}
