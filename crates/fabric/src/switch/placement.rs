//! Placement: hints that the assignment of queues to workers follows where it can.

/// Placement hint: the CPU or NUMA node near to a queue's memory or device. The default is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Placement {
    /// Prefer the worker on this CPU, if there is one.
    pub cpu: Option<usize>,
    /// Otherwise a worker on this NUMA node, if there is one.
    pub node: Option<usize>,
}

impl Placement {
    /// Whether a worker on `cpu` and `node` is near.
    pub(crate) fn is_near(&self, cpu: Option<usize>, node: Option<usize>) -> bool {
        self.suits(cpu, node) > 0
    }

    /// Rates a worker on `cpu` and `node`: larger is better.
    pub(crate) fn suits(&self, cpu: Option<usize>, node: Option<usize>) -> u8 {
        match () {
            () if self.cpu.is_some() && self.cpu == cpu => 2,
            () if self.node.is_some() && self.node == node => 1,
            () => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_suits_better_than_a_node() {
        let hint = Placement { cpu: Some(3), node: Some(1) };
        assert_eq!(hint.suits(Some(3), Some(0)), 2);
        assert_eq!(hint.suits(Some(4), Some(1)), 1);
        assert_eq!(hint.suits(Some(4), Some(0)), 0);
        assert_eq!(Placement::default().suits(None, None), 0);
    }
}
