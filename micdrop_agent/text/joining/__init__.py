"""Joins the text of one model to what another one has already said in the same answer.

Below the core, not beside the supervisor that needs it first: a turn holds these filters back and commits them.
"""

from __future__ import annotations

from micdrop_agent.text.joining.lead_in import LeadInFilter
from micdrop_agent.text.joining.lead_words import LEAD_INS, LeadInWords
from micdrop_agent.text.joining.seam import SeamFilter

__all__ = ["LEAD_INS", "LeadInFilter", "LeadInWords", "SeamFilter"]
