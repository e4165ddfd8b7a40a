//! The worker's random numbers: seeded by the executor, equal for equal seeds, not for secrets.

/// xoshiro256++ seeded through splitmix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        Random { state: [next(), next(), next(), next()] }
    }
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let result = s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0);
        let (mut n2, mut n3) = (s2 ^ s0, s3 ^ s1);
        let (n1, n0) = (s1 ^ n2, s0 ^ n3);
        n2 ^= s1 << 17;
        n3 = n3.rotate_left(45);
        self.state = [n0, n1, n2, n3];
        result
    }
    /// Uniform below `bound` (0 for a bound of 0); the bias of one part in 2^64 / bound does not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
    /// True once in `n` calls on average; never for 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }
}
