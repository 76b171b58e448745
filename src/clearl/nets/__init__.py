"""Networks: torsos, the recurrent core, the policy's distribution, and how several columns work together."""
