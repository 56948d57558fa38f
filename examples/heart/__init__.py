"""Four hospitals learn to predict heart disease together, and no patient's record leaves its hospital.

``task.task_for(hospital=…)`` is what each site trains; ``plan.toml`` is the run; ``baseline`` holds
what the result is compared with. The patients are real (UCI, 740 records): see ``DATA.md``.
"""
