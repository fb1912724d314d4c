"""Tasks that need structure, drawn from a seed with NumPy alone; each has an oracle that answers everything.

==================== ============================================ ===========================================
task                 what must be read                            true edges
==================== ============================================ ===========================================
mqar                 the value that once stood beside a key       one a query
induction            what followed this token the last time       one a text
selective_copying    the few symbols among fillers, in order      one a mark
phone_book           the number behind a name of two tokens       one a digit
dyck                 the innermost open bracket                   one a closing bracket
DependencyLanguage   the answers at the dependencies in a graph   the simulation's G*, typed, token by token
==================== ============================================ ===========================================
"""

from sheafstate.data.synthetic.dependency_language import DENSE_RATES, DependencyLanguage, dependency_oracle
from sheafstate.data.synthetic.dyck import dyck, dyck_oracle, dyck_vocabulary
from sheafstate.data.synthetic.examples import Examples
from sheafstate.data.synthetic.induction import induction, induction_oracle
from sheafstate.data.synthetic.mqar import mqar, mqar_oracle
from sheafstate.data.synthetic.phone_book import phone_book, phone_book_oracle, phone_book_vocabulary
from sheafstate.data.synthetic.selective_copying import selective_copying, selective_copying_oracle

__all__ = [
    "DENSE_RATES",
    "DependencyLanguage",
    "Examples",
    "dependency_oracle",
    "dyck",
    "dyck_oracle",
    "dyck_vocabulary",
    "induction",
    "induction_oracle",
    "mqar",
    "mqar_oracle",
    "phone_book",
    "phone_book_oracle",
    "phone_book_vocabulary",
    "selective_copying",
    "selective_copying_oracle",
]
