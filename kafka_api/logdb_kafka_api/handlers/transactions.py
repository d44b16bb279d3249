"""Producer ids."""

from logdb.errors import LogdbError
from logdb.model import ProducerIdAndEpoch
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import code_of


async def init_producer_id(call: Call) -> Values:
    values = call.values
    former = ProducerIdAndEpoch(values["producer_id"], values["producer_epoch"]) if values["producer_id"] >= 0 else None
    try:
        given = await call.call(
            call.session.init_producer_id,
            values["transactional_id"],
            transaction_timeout_ms=values["transaction_timeout_ms"],
            producer=former,
        )
    except LogdbError as error:
        return {"error_code": code_of(error), "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, **given._asdict()}
