"""Names of the axes, once.

Signatures in ``ops`` and ``nn`` are annotated with jaxtyping; the test run checks them with beartype.

=====  =========================================================
axis   meaning
=====  =========================================================
B      rows of the batch
T      positions of a row
H      heads (of the types that the function serves)
D      d_model, the width of the residual stream
P      d_head, the width of a section (its stalk)
N      d_state, the width of a state-space model's state
M      address maps
K      addresses of a map
E      experts
=====  =========================================================
"""

from jaxtyping import Bool, Float, Int, Int8
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Int8", "Tensor"]
