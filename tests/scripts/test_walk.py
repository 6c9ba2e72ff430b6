"""The walk of a request through the code, as it is counted."""

import walk


def test_a_request_goes_from_the_command_to_the_table(tmp_path):
    followed = walk.follow(tmp_path)
    stays = {stay.function for stay in followed.stays}
    assert {
        "run_benchmark",
        "plan_tasks",
        "Task.rows",
        "Task.fit_hash",
        "compare_with_papers",
    } <= stays
    for caller, stay in followed.climbs:
        assert followed.find_level(stay) > followed.find_level(caller)


def test_the_order_of_packages_is_that_of_the_project():
    levels = walk.read_levels()
    assert levels["errors"] == levels["types"] == 0
    assert levels["spec"] < levels["plan"] < levels["reports"] < levels["cli"]
