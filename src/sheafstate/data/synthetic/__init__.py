"""Tasks that need structure, drawn from a seed with NumPy alone; each has an oracle that answers everything.

==================== ============================================ ===========================================
task                 what must be read                            true edges
==================== ============================================ ===========================================
mqar                 the value that once stood beside a key       one a query
DependencyLanguage   the answers at the dependencies in a graph   the simulation's G*, typed, token by token
==================== ============================================ ===========================================
"""

from sheafstate.data.synthetic.dependency_language import DENSE_RATES, DependencyLanguage, dependency_oracle
from sheafstate.data.synthetic.examples import Examples
from sheafstate.data.synthetic.mqar import mqar, mqar_oracle

__all__ = ["DENSE_RATES", "DependencyLanguage", "Examples", "dependency_oracle", "mqar", "mqar_oracle"]
