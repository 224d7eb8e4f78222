"""Verifies derivatives and rules: against differences, against each other, against a loop."""

from ftrans.verify.check_rules import check_rules
from ftrans.verify.gradcheck import gradcheck, gradgradcheck
from ftrans.verify.report import Failure, Report

__all__ = ["Failure", "Report", "check_rules", "gradcheck", "gradgradcheck"]
